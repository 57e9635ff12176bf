"""OpenVINO's backend and its profiler."""
