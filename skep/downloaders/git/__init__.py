"""git: checked URLs, a safe start of the program, and polls that list the refs of a server.

Centers use it for packages of applications. Nothing here trusts a server, a repository or a URL.
"""
