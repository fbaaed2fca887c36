"""Models from other tools: UMB files of PRISM, Storm and Modest, and PRISM models that stormpy builds."""
