"""llama.cpp, through llama-cpp-python: an optional library that is built from source."""
