package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/config"
)

// checks maps each command that the pages use to the function that checks a call.
var checks = map[string]func(c call) error{
	"forwarder": call.forwarder,
	"make":      call.make,
	"helm":      call.helm,
	"kubectl":   call.kubectl,
}

// unchecked lists the commands that aren't run, with the reason. The paths among their arguments
// are still checked.
var unchecked = map[string]string{
	"cosign": "signs with an identity of the maintainer",
	"gpg":    "signs with a key of the maintainer",
	"podman": "pushes an image to a registry",
	"nats":   "is a tool of its own, and the project does not depend on it",
	"jq":     "is a tool of its own, and the project does not depend on it",
	"curl":   "needs a forwarder in a cluster",
	"grep":   "filters the output of a command",
	"sleep":  "waits for a command",
}

// languages maps the info string of a fenced block to whether the block contains commands.
var languages = map[string]bool{
	"sh": true, "bash": true, "console": true,
	"text": false, "yaml": false, "json": false, "sql": false, "go": false, "python": false,
}

// record is the environment variable that names the directory where a stand-in for a command records
// its call.
const record = "KUBERELAY_DOCS_RECORD"

// call is one call of a command in a block.
type call struct {
	Args []string // begin with the name of the command
	Env  []string // Kuberelay's variables

	binary string // the path of the forwarder
}

// TestMain records the call if the test binary runs as a stand-in for a command of a block.
// Otherwise, it runs the tests.
func TestMain(m *testing.M) {
	dir := os.Getenv(record)
	if dir == "" {
		os.Exit(m.Run())
	}
	c := call{Args: append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...)}
	for _, pair := range os.Environ() {
		if strings.HasPrefix(pair, config.Prefix) && !strings.HasPrefix(pair, record+"=") {
			c.Env = append(c.Env, pair)
		}
	}
	file, err := os.CreateTemp(dir, "call")
	if err == nil {
		err = errors.Join(json.NewEncoder(file).Encode(c), file.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

var (
	block    = regexp.MustCompile("(?s)\n```([^\n]*)\n(.*?\n)```\n")
	prompt   = regexp.MustCompile(`(?m)^ *\$ (.*)$`)
	variable = regexp.MustCompile(config.Prefix + `[A-Z0-9_]*[A-Z0-9]`)
)

// TestCommands_Slow verifies the commands in the documentation. A shell runs every command block with a
// stand-in for each command. The test then checks the recorded calls as far as possible without a
// cluster or a registry.
func TestCommands_Slow(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "forwarder")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, root+"/cmd/forwarder").CombinedOutput(); err != nil {
		t.Fatalf("build the forwarder: %v\n%s", err, out)
	}
	n := 0
	for name, page := range pages(t) {
		for _, at := range block.FindAllStringSubmatchIndex(page, -1) {
			language, text := page[at[2]:at[3]], page[at[4]:at[5]]
			runs, known := languages[language]
			where := fmt.Sprintf("%s:%d", name, 2+strings.Count(page[:at[0]], "\n"))
			if !known {
				t.Errorf("%s: the block needs a language: sh or console for commands, text for anything else; got %q", where, language)
			}
			if !runs {
				continue
			}
			n++
			t.Run(where, func(t *testing.T) {
				if language == "console" {
					text = withoutOutput(text)
				}
				for _, c := range calls(t, text) {
					c.binary = binary
					if err := c.check(); err != nil {
						t.Errorf("%s: %v", strings.Join(c.Args, " "), err)
					}
				}
			})
		}
	}
	if n < 20 {
		t.Errorf("found %d blocks of commands", n)
	}
}

// withoutOutput returns the commands of a console block, which are the text after each prompt.
func withoutOutput(text string) string {
	var script strings.Builder
	for _, m := range prompt.FindAllStringSubmatch(text, -1) {
		script.WriteString(m[1] + "\n")
	}
	return script.String()
}

// calls runs a script with stand-ins and returns the recorded calls. It adds a call of "forwarder
// config", which receives the variables that the script sets. A command without a stand-in fails
// the test.
func calls(t *testing.T, script string) []call {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, recorded := t.TempDir(), t.TempDir()
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, commands := range [][]string{keys(checks), keys(unchecked)} {
		for _, name := range commands {
			if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	sh := exec.CommandContext(t.Context(), "/bin/sh", "-c", "set -a\n"+script+"\nwait\nforwarder config\n")
	sh.Dir, sh.Env = dir, []string{"PATH=" + bin, record + "=" + recorded}
	var stderr bytes.Buffer
	sh.Stderr = &stderr
	if err := sh.Run(); err != nil || stderr.Len() > 0 {
		t.Fatalf("the shell ended with %v and %q; each command of a block needs a check in this test", err, stderr.String())
	}
	files, err := filepath.Glob(filepath.Join(recorded, "call*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no calls: %v", err)
	}
	all := make([]call, len(files))
	for i, file := range files {
		b, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(b, &all[i])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(all) == 1 && len(all[0].Env) == 0 {
		t.Error("the block has no command")
	}
	return all
}

func keys[V any](m map[string]V) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	return names
}

func (c call) check() error {
	for _, arg := range c.Args[1:] {
		first, _, isPath := strings.Cut(arg, "/")
		if _, err := os.Stat(filepath.Join(root, first)); !isPath || first == "" || err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, arg)); err != nil {
			return err
		}
	}
	if check, ok := checks[c.Args[0]]; ok {
		return check(c)
	}
	return nil
}

// forwarder runs "forwarder config" unchanged. It runs every other call with an unknown variable
// added. A correct command line fails with the error about that variable, and an incorrect one
// fails earlier with another error.
func (c call) forwarder() error {
	const stop = config.Prefix + "DOCS_STOP"
	cmd := exec.Command(c.binary, c.Args[1:]...)
	cmd.Env = append([]string{"HOME=/", "KUBERELAY_RESOURCES=pods"}, c.Env...)
	if slices.Equal(c.Args[1:], []string{"config"}) {
		return run(cmd)
	}
	cmd.Env = append(cmd.Env, stop+"=1")
	if err := run(cmd); err != nil && !strings.Contains(err.Error(), stop+": there is no such variable") {
		return err
	}
	return nil
}

// make prints the recipe with a dry run. The recipe must contain the value of every variable.
func (c call) make() error {
	args := []string{"--no-print-directory", "--dry-run", "-C", root}
	var values []string
	for i, arg := range c.Args[1:] {
		if name, _, ok := strings.Cut(arg, "="); ok {
			values = append(values, fmt.Sprintf("docs-value-%d", i))
			arg = name + "=" + values[len(values)-1]
		}
		args = append(args, arg)
	}
	out, err := exec.Command("make", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	for _, value := range values {
		if !bytes.Contains(out, []byte(value)) {
			return fmt.Errorf("the target does not read every variable:\n%s", out)
		}
	}
	return nil
}

// helm renders what "helm install" would install. The chart's schema validates every value.
func (c call) helm() error {
	if len(c.Args) < 2 || c.Args[1] != "install" {
		return errors.New("only helm install has a check")
	}
	helm, err := exec.Command("make", "--no-print-directory", "-s", "-C", root, "which-helm").Output()
	if err != nil {
		return err
	}
	cmd := exec.Command(strings.TrimSpace(string(helm)), append([]string{"template"}, c.Args[2:]...)...)
	cmd.Dir = root
	return run(cmd)
}

// kubectl checks only a call of the forwarder in a pod, because kubectl itself needs a cluster.
func (c call) kubectl() error {
	if i := slices.Index(c.Args, "--"); i >= 0 && c.Args[i+1] == "/forwarder" {
		c.Args = c.Args[i+1:]
		return c.forwarder()
	}
	return nil
}

func run(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

func TestVariables(t *testing.T) {
	known := map[string]bool{}
	for _, f := range config.Fields() {
		known[f.Name] = true
	}
	for name, page := range pages(t) {
		if name == "docs/configuration.md" { // generated from config.Fields, and also names variables of Services
			continue
		}
		for _, v := range variable.FindAllString(page, -1) {
			if !known[v] {
				t.Errorf("%s names %s, and there is no such variable", name, v)
			}
		}
	}
}
