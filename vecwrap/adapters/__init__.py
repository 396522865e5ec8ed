"""To and from the environments of other libraries; none of them is imported before one is asked for."""
