// Lets cluster.go declare functions without a body.
