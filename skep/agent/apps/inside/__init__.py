"""Code that runs in the process of an application before the application starts."""
