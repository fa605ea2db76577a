"""Requests that the edge answers itself: fetches of messages, verification of copies, channel lists of partitioned servers."""
