"""The engine of the `http` and `curl` kinds: one thread per run around libcurl."""
