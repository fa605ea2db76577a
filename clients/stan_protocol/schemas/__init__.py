"""Schemas of messages: what is wrong with one, whether two can read each other's messages, and checks of data. Pure."""
