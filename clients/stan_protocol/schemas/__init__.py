"""Schemas of messages: validation of one, compatibility of two, and checks of data. Pure."""
