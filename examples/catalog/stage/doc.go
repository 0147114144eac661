// Package stage has the protections that people put before an expensive load, in the order in which
// they learn of them: from nothing at all, over one lock after another, to cacheguard. Each is a
// small file that does what its paragraph in the literature says, and no more: its flaw is that of
// the scheme, and shows when it is forced.
//
// What a protection does it tells at points that have names. Whoever runs it may hold it up there,
// as a slow network or a collector of garbage would, or end it there, as a power cut would: that is
// how its flaw is forced.
//
// It is here for the example and for the benchmark to use. It promises nothing to other programs.
package stage
