// Package lab runs a stage with a fleet of replicas, a crowd of requests and a fault, and says what
// happened: each step of each request, and a verdict in one sentence.
//
// The stage's own code does what goes wrong. A fault only does to it what the world does: it ends a
// replica at a point, or holds it there, sets its clock, keeps its packets, has Redis fail over,
// slows the origin down, or renames a category at a bad moment.
package lab
