"""Evidence that large errors of the forecast lack: sources, stated configurations, patterns in the columns of rows."""
