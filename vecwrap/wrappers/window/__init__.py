"""The window of render_mode="human", in a process of its own."""
