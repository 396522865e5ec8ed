"""Worker processes: what they are asked, how they are started, what is said to them and where."""
