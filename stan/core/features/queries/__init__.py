"""Questions of clients about channels, also those that wait for news."""
