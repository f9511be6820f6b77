package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Paths are the paths of the components' binaries. Components that weren't requested can have an empty
// path.
type Paths struct {
	Etcd              string
	APIServer         string
	ControllerManager string
	Kwok              string
	Aggregated        string // the aggregated API server
	KwokStages        string // the file that configures how kwok simulates nodes and pods
}

// Binaries returns the paths of the binaries that Start needs for opts. It builds each binary that is
// neither in KUBEBUILDER_ASSETS nor in the cache, which takes minutes, and writes its progress to
// opts.Log. If several processes need the same binary, one process builds it and the others wait.
func Binaries(ctx context.Context, opts Options) (Paths, error) {
	log := opts.log()
	assets, err := fromAssets(os.Getenv("KUBEBUILDER_ASSETS"))
	if err != nil {
		return Paths{}, err
	}
	paths := assets
	if assets.Etcd == "" || opts.ControllerManager && assets.ControllerManager == "" {
		dir, err := cached(ctx, log, controlPlaneArtifact)
		if err != nil {
			return Paths{}, err
		}
		if assets.Etcd == "" {
			paths.Etcd = filepath.Join(dir, "etcd")
			paths.APIServer = filepath.Join(dir, "kube-apiserver")
		}
		paths.ControllerManager = filepath.Join(dir, "kube-controller-manager")
	}
	if opts.Aggregated {
		dir, err := cached(ctx, log, aggregatedArtifact)
		if err != nil {
			return Paths{}, err
		}
		paths.Aggregated = filepath.Join(dir, "sample-apiserver")
	}
	if opts.Kwok {
		dir, err := cached(ctx, log, kwokArtifact)
		if err != nil {
			return Paths{}, err
		}
		paths.Kwok = filepath.Join(dir, "kwok")
		paths.KwokStages = filepath.Join(dir, kwokStages)
	}
	return paths, nil
}

// fromAssets returns the binaries in a directory with the layout of controller-runtime's envtest. The
// directory must contain etcd and kube-apiserver. kube-controller-manager is optional.
func fromAssets(dir string) (Paths, error) {
	if dir == "" {
		return Paths{}, nil
	}
	paths := Paths{Etcd: filepath.Join(dir, "etcd"), APIServer: filepath.Join(dir, "kube-apiserver")}
	for _, path := range []string{paths.Etcd, paths.APIServer} {
		if _, err := os.Stat(path); err != nil {
			return Paths{}, fmt.Errorf("use KUBEBUILDER_ASSETS: %w; unset it to have the control plane built", err)
		}
	}
	manager := filepath.Join(dir, "kube-controller-manager")
	switch _, err := os.Stat(manager); {
	case err == nil:
		paths.ControllerManager = manager
	case !errors.Is(err, fs.ErrNotExist):
		return Paths{}, fmt.Errorf("use KUBEBUILDER_ASSETS: %w", err)
	}
	return paths, nil
}
