# Tests of tokenizer.
