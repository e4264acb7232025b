"""The CPU device of tinycore, with the LLVM and CLANG renderers."""
