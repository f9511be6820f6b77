package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// kwokStages is the name of the file with kwok's stages. The file is in the same directory as the binary.
const kwokStages = "stages.yaml"

// kwokArtifact is kwok with the stages from its release. Without stages, kwok doesn't start.
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

// kwokHeartbeat matches the heartbeat interval in the stages.
var kwokHeartbeat = regexp.MustCompile(`durationMilliseconds: 600000\n(\s+)jitterDurationMilliseconds: 610000`)

// writeKwokStages writes the stages with another heartbeat interval and returns the path of the file.
// If heartbeat is 0, it returns the path of kwok's own stages.
func (cp *ControlPlane) writeKwokStages(from string, heartbeat time.Duration) (string, error) {
	if heartbeat == 0 {
		return from, nil
	}
	stages, err := os.ReadFile(from)
	if err != nil {
		return "", fmt.Errorf("read kwok's stages: %w", err)
	}
	if !kwokHeartbeat.Match(stages) {
		return "", errors.New("kwok's stages have no heartbeat of ten minutes any more")
	}
	pace := fmt.Sprintf("durationMilliseconds: %d\n${1}jitterDurationMilliseconds: %d", heartbeat.Milliseconds(), 2*heartbeat.Milliseconds())
	to := cp.file(kwokStages)
	return to, os.WriteFile(to, kwokHeartbeat.ReplaceAll(stages, []byte(pace)), 0o600)
}

// kwokArgs returns the command line that makes kwok manage every node and the pods that are bound to
// it.
func kwokArgs(binary, stages, kubeconfig string) []string {
	return []string{binary,
		"--kubeconfig=" + kubeconfig,
		"--config=" + stages,
		"--manage-all-nodes=true",
	}
}
