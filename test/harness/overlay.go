package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Patch applies a patch to copies of the module's files in the directory dir, which must exist. It
// returns the path of the overlay file for go build -overlay. The module itself isn't changed. Patch
// returns an error if the patch doesn't apply. The patch's line numbers may differ from the file's.
func Patch(ctx context.Context, patch, dir string) (overlay string, err error) {
	text, err := os.ReadFile(patch)
	if err != nil {
		return "", fmt.Errorf("plant a bug: %w", err)
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for _, m := range patchedFile.FindAllStringSubmatch(string(text), -1) {
		from, to := filepath.Join(root, m[1]), filepath.Join(dir, m[1])
		replace[from] = to
		if err := copyFile(from, to); err != nil {
			return "", fmt.Errorf("plant %s: %w", filepath.Base(patch), err)
		}
	}
	if len(replace) == 0 {
		return "", fmt.Errorf("plant %s: the patch changes no file", filepath.Base(patch))
	}
	apply := exec.CommandContext(ctx, "git", "apply", "-")
	apply.Dir, apply.Stdin = dir, strings.NewReader(string(text))
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir)) // stops git from finding a repository above dir
	if out, err := apply.CombinedOutput(); err != nil {
		return "", fmt.Errorf("plant %s: the patch does not apply to the code as it is now: %w\n%s", filepath.Base(patch), err, out)
	}
	overlay = filepath.Join(dir, "overlay.json")
	contents, err := json.Marshal(map[string]any{"Replace": replace})
	return overlay, errors.Join(err, os.WriteFile(overlay, contents, 0o600))
}

// patchedFile matches the name of each file that a patch changes. Patches don't add or remove files.
var patchedFile = regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)`)

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kuberelay/kuberelay").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
