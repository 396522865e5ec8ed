"""What wrappers that write files share: videos, recorders, files of a run."""
