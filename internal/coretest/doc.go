// Package coretest has only tests: they test package cacheguard as its users see it. They are in a
// folder of their own, so that the folder of package cacheguard shows its code. That folder has the
// examples, the benchmarks, tests that need unexported names, and tests of documents and imports.
package coretest
