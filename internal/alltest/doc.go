// Package alltest has the tests that need packages of several modules: all codecs in caches, what
// each observer costs, and that the operations page tells of every line, metric and alert. Nothing
// imports it, and it is in no release.
package alltest
