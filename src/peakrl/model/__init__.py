"""Problems as data: what a user writes, and the frozen arrays that everything else works on."""
