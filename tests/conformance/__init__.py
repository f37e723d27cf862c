"""The official conformance suite, run against the gateway and against the fixture that stands behind it."""
