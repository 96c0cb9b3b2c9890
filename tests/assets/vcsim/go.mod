// The simulator of a vCenter that tests/src/vcsim.rs builds and runs.
module polity.dev/vcsim

go 1.26

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/vmware/govmomi v0.54.0
)
