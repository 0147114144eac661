// Package fuzztest has only tests: the fuzz targets of package cacheguard.
//
// A fuzz target is built with coverage of its whole package and of the package's tests. Package
// coretest has so many tests that this build would take far longer than the fuzzing.
package fuzztest
