// Package durability holds the tests that prove what an acknowledgement promises: kill loops over the real program,
// power cuts under the store and the bytes of artifacts, file operations that fail, full and read-only disks, clocks that
// jump, bits that flip, sweeps beside commits, and histories of many clients checked for linearizability. Each has
// controls that must fail, or says by its counts what it met; a detector that cannot fail proves nothing.
//
// Environment variables make the runs longer: KILLS, CUTS, HISTORIES, and NTH=all for every call of every kind that can
// fail. The tests print what they met.
package durability
