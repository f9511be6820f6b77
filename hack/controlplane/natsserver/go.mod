// Module natsserver pins the NATS server that test/lab/controlplane builds for tests of an upgrade. It
// is the last release before the minor version that the project itself uses.
module github.com/kuberelay/kuberelay/hack/controlplane/natsserver

go 1.26.0

require github.com/nats-io/nats-server/v2 v2.14.10

require (
	github.com/antithesishq/antithesis-sdk-go v0.9.0-default-no-op // indirect
	github.com/google/go-tpm v0.9.8 // indirect
	github.com/klauspost/compress v1.20.4 // indirect
	github.com/minio/highwayhash v1.0.4 // indirect
	github.com/nats-io/jwt/v2 v2.8.3 // indirect
	github.com/nats-io/nkeys v0.4.17 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/time v0.16.0 // indirect
)
