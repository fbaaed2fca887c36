"""Problems with continuous states: dynamics in numpy, sound safe sets on a grid."""
