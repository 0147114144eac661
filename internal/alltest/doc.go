// Package alltest has the tests that need packages of several modules. They test all codecs in
// caches, measure the cost of each observer, open the status page in a browser, and test that the
// operations page has every log line, metric and alert, and that lines wrap at 100 columns. No
// package imports it, and it is in no release.
package alltest
