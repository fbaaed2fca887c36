"""Problems that come with peakrl."""
