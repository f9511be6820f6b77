package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// kwokStages is the name of the file of stages beside kwok's binary.
const kwokStages = "stages.yaml"

// kwokArtifact is kwok with the stages that its own release ships: without
// any, it refuses to start.
var kwokArtifact = artifact{
	name:   "kwok",
	source: "kwok",
	args: func(string) ([]string, error) {
		return []string{"-ldflags=-s -w", "sigs.k8s.io/kwok/cmd/kwok"}, nil
	},
	finish: func(ctx context.Context, source, dir string) error {
		module, err := goCommand(ctx, source, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok").Output()
		if err != nil {
			return fmt.Errorf("find kwok's stages: %w", err)
		}
		var stages bytes.Buffer
		for _, name := range []string{
			"node/fast/node-initialize.yaml",
			"node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
			"pod/fast/pod-ready.yaml",
			"pod/fast/pod-complete.yaml",
			"pod/fast/pod-delete.yaml",
		} {
			stage, err := os.ReadFile(filepath.Join(string(bytes.TrimSpace(module)), "kustomize", "stage", name))
			if err != nil {
				return fmt.Errorf("read kwok's stages: %w", err)
			}
			fmt.Fprintf(&stages, "---\n%s\n", stage)
		}
		return os.WriteFile(filepath.Join(dir, kwokStages), stages.Bytes(), 0o644)
	},
}

// kwokArgs makes every node ready, and the pods that are bound to one run.
func kwokArgs(paths Paths, kubeconfig string) []string {
	return []string{paths.Kwok,
		"--kubeconfig=" + kubeconfig,
		"--config=" + paths.KwokStages,
		"--manage-all-nodes=true",
	}
}
