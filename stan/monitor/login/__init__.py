"""Logins to the pages: who sends a request, what that person may see, sessions of browsers, and the bounds of failed tries.

`authentication` decides about each request; the others know nothing of HTTP.
"""
