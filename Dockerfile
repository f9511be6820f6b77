# This image contains only the forwarder, on an empty base. "make image" builds it with buildah, podman or docker.
#
# GO_IMAGE needs Go, git and the certificate authorities in /etc/ssl/certs/ca-certificates.crt.
# For a release, pin it by digest: --build-arg GO_IMAGE=docker.io/library/golang@sha256:…
ARG GO_IMAGE=docker.io/library/golang:1.26
ARG BASE_IMAGE=scratch

FROM ${GO_IMAGE} AS build
# Set these if the modules do not come from the public proxy.
ARG GOPROXY
ARG GOFLAGS
ARG VERSION
ARG COMMIT
ENV CGO_ENABLED=0
WORKDIR /src
COPY . .
# The Makefile explains -tags and -gcflags.
RUN go build -trimpath -buildvcs=true -tags nethttpomithttp2 -gcflags all=-l -gcflags std= -gcflags github.com/kuberelay/kuberelay/...= \
    -gcflags github.com/nats-io/nats.go/...= -gcflags github.com/segmentio/...= -gcflags github.com/klauspost/...= -ldflags="-s -w -X main.version=${VERSION} -X main.commit=${COMMIT}" -o /forwarder ./cmd/forwarder

FROM ${BASE_IMAGE}
ARG VERSION
ARG COMMIT
LABEL org.opencontainers.image.title="kuberelay" \
      org.opencontainers.image.description="Change data capture for the Kubernetes API" \
      org.opencontainers.image.source="https://github.com/kuberelay/kuberelay" \
      org.opencontainers.image.url="https://github.com/kuberelay/kuberelay" \
      org.opencontainers.image.documentation="https://github.com/kuberelay/kuberelay/tree/main/docs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /forwarder /forwarder
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/forwarder"]
