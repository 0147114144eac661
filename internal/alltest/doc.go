// Package alltest has the tests that need packages of several modules. They test all codecs in
// caches, measure the cost of each observer, and test that the operations page has every log line,
// metric and alert. No package imports it, and it is in no release.
package alltest
