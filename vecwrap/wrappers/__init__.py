"""The layers of this package, one file each; the file has the name that pipelines use."""
