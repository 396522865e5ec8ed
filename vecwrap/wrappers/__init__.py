"""The wrappers of this package, one file each; the file has the name that pipelines use."""
