# Tests of transformer.
