"""Problems as data: the registry of kinds, specifications, problem files, and code of users."""
