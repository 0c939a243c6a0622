"""The HTTP server: protocols, admission, batching, backends, metrics."""
