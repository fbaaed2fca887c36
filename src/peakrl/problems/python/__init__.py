"""Problems that a user's function creates."""
