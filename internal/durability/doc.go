// Package durability holds the tests that prove what an acknowledgement promises: kill loops over the real program,
// power cuts under the store, and histories of many clients checked for linearizability. Each has controls that must
// fail; a detector that cannot fail proves nothing.
//
// Environment variables make the runs longer: KILLS, CUTS, HISTORIES. The tests print what they met.
package durability
