package kafkabroker

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const (
	java17 = "echo 'openjdk version \"17.0.1\" 2021-10-19' >&2"
	java8  = "echo 'java version \"1.8.0_202\"' >&2"
	// fakeMaven is a stand-in for mvn. It records its call and creates a jar, as Maven would.
	fakeMaven = `echo called >>"$CALLS"; echo jar >kafka.jar`
)

// system creates a PATH directory that contains only the given commands, and an empty cache. It returns
// the PATH directory.
func system(t *testing.T, commands map[string]string) string {
	t.Helper()
	bin := t.TempDir()
	for name, script := range commands {
		putCommand(t, filepath.Join(bin, name), script)
	}
	t.Setenv("PATH", bin)
	t.Setenv("JAVA_HOME", "")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("CALLS", filepath.Join(bin, "calls"))
	return bin
}

func putCommand(t *testing.T, file, script string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// calls returns the calls that the stand-ins have recorded.
func calls(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(os.Getenv("CALLS"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(content)
}

func TestFetchOnce(t *testing.T) {
	bin := system(t, map[string]string{"java": java17, "mvn": fakeMaven})
	const callers = 4
	var installed [callers]Installation
	var logs [callers]bytes.Buffer
	var callersDone sync.WaitGroup
	for i := range callers {
		callersDone.Go(func() {
			var err error
			if installed[i], err = fetch(t.Context(), &logs[i], false); err != nil {
				t.Error(err)
			}
		})
	}
	callersDone.Wait()
	for i := range callers {
		if installed[i] != installed[0] {
			t.Errorf("got %+v and %+v, want one", installed[i], installed[0])
		}
	}
	if got, want := installed[0].Java, filepath.Join(bin, "java"); got != want {
		t.Errorf("got java %s, want %s", got, want)
	}
	if !exists(filepath.Join(installed[0].Jars, "kafka.jar")) {
		t.Errorf("the jar is not in %s", installed[0].Jars)
	}
	if got := calls(t); got != "called\n" {
		t.Errorf("Maven was %q, want it called once", got)
	}
	// With cached jars, a fetch doesn't need Maven.
	if err := os.Remove(filepath.Join(bin, "mvn")); err != nil {
		t.Fatal(err)
	}
	if _, err := fetch(t.Context(), &logs[0], false); err != nil {
		t.Error(err)
	}
}

// TestFetchJars verifies that each pom.xml has its own directory, which is created only once.
func TestFetchJars(t *testing.T) {
	system(t, map[string]string{"java": java17, "mvn": `read -r pom <pom.xml; echo "$pom" >>"$CALLS"; echo jar >client.jar`})
	fetched := map[string]string{}
	for range 2 {
		for _, pom := range []string{"<one/>\n", "<other/>\n"} {
			var log bytes.Buffer
			jars, err := FetchJars(t.Context(), &log, "client", []byte(pom))
			if err != nil {
				t.Fatal(err)
			}
			if !exists(filepath.Join(jars, "client.jar")) || !strings.HasPrefix(filepath.Base(jars), "client-") {
				t.Errorf("the jar is not in %s, or that is not called after it", jars)
			}
			if first, ok := fetched[pom]; ok && (jars != first || log.Len() > 0) {
				t.Errorf("got %s the second time and %s the first, and %q", jars, first, &log)
			}
			fetched[pom] = jars
		}
	}
	if got, want := calls(t), "<one/>\n<other/>\n"; got != want || fetched["<one/>\n"] == fetched["<other/>\n"] {
		t.Errorf("Maven was given %q, want %q, in different directories: %v", got, want, fetched)
	}
}

func TestFetchErrorShowsMavenOutput(t *testing.T) {
	system(t, map[string]string{"java": java17, "mvn": "echo no route to the registry; echo >half.jar; exit 1"})
	_, err := fetch(t.Context(), new(bytes.Buffer), false)
	if err == nil || !strings.Contains(err.Error(), "no route to the registry") {
		t.Errorf("got error %v, want one with the output of Maven", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(cache, "kuberelay", "kafkabroker", "kafka-????????????????"))
	if err != nil || len(left) > 0 {
		t.Errorf("got %q in the cache, want nothing that looks complete (%v)", left, err)
	}
}

func TestMissingTools(t *testing.T) {
	for _, test := range []struct {
		name     string
		commands map[string]string
		javaHome string // an existing java, in a directory bin
		want     []string
	}{
		{"both", nil, "", []string{"java is missing", "Maven, which fetches them, is missing", "apt-get install", "dnf install", "brew install"}},
		{"java", map[string]string{"mvn": fakeMaven}, "", []string{"java is missing", "apt-get install"}},
		{"Maven", map[string]string{"java": java17}, "", []string{"no mvn in PATH", "apt-get install"}},
		{"new java", map[string]string{"java": java8, "mvn": fakeMaven}, "", []string{"is Java 8", "needs 17 or later"}},
		{"working java", map[string]string{"java": "echo no runtime present; exit 1", "mvn": fakeMaven}, "", []string{"no runtime present"}},
		{"new java in JAVA_HOME", map[string]string{"java": java17, "mvn": fakeMaven}, java8, []string{"JAVA_HOME is wrong", "is Java 8"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bin := system(t, test.commands)
			if test.javaHome != "" {
				putCommand(t, filepath.Join(bin, "home", "bin", "java"), test.javaHome)
				t.Setenv("JAVA_HOME", filepath.Join(bin, "home"))
			}
			// Without apt-get, root fails like any other user.
			for _, root := range []bool{false, true} {
				_, err := fetch(t.Context(), new(bytes.Buffer), root)
				if err == nil {
					t.Fatal("no error, although a tool is missing")
				}
				for _, want := range test.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("got error %v, want one with %q", err, want)
					}
				}
			}
			if got := calls(t); got != "" {
				t.Errorf("Maven was %q, want it not called", got)
			}
		})
	}
}

func TestJavaHomeFirst(t *testing.T) {
	bin := system(t, map[string]string{"java": java8, "mvn": fakeMaven})
	want := filepath.Join(bin, "home", "bin", "java")
	putCommand(t, want, java17)
	t.Setenv("JAVA_HOME", filepath.Join(bin, "home"))
	installed, err := fetch(t.Context(), new(bytes.Buffer), false)
	if err != nil {
		t.Fatal(err)
	}
	if installed.Java != want {
		t.Errorf("got java %s, want %s", installed.Java, want)
	}
}

// aptGet returns a stand-in for apt-get that can install only the given Java package, together with
// Maven.
func aptGet(java string) string {
	return `echo "$@" >>"$CALLS"
case "$*" in *update) exit ;; *"install --no-install-recommends ` + java + ` maven") ;; *) echo no such package; exit 100 ;; esac
{ echo '#!/bin/sh'; echo "` + strings.ReplaceAll(java17, `"`, `\"`) + `"; } >"$PATH/java"
{ echo '#!/bin/sh'; echo '` + fakeMaven + `'; } >"$PATH/mvn"
PATH=/bin:/usr/bin chmod +x "$PATH/java" "$PATH/mvn"`
}

func TestRootInstalls(t *testing.T) {
	for _, java := range []string{"openjdk-17-jre-headless", "default-jre-headless"} {
		t.Run(java, func(t *testing.T) {
			bin := system(t, map[string]string{"apt-get": aptGet(java)})
			if _, err := fetch(t.Context(), new(bytes.Buffer), false); err == nil || calls(t) != "" {
				t.Fatalf("without root: got error %v, and calls of apt-get %q, want an error and none", err, calls(t))
			}
			var log bytes.Buffer
			installed, err := fetch(t.Context(), &log, true)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := installed.Java, filepath.Join(bin, "java"); got != want {
				t.Errorf("got java %s, want %s", got, want)
			}
			for _, want := range []string{"java is missing", "installing " + java + " and maven with apt-get"} {
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log is %q, want %q in it", log.String(), want)
				}
			}
		})
	}
	t.Run("nothing to be had", func(t *testing.T) {
		system(t, map[string]string{"apt-get": aptGet("no-such-package")})
		_, err := fetch(t.Context(), new(bytes.Buffer), true)
		if err == nil || !strings.Contains(err.Error(), "no such package") || !strings.Contains(err.Error(), "brew install") {
			t.Errorf("got error %v, want one with the output of apt-get and with instructions", err)
		}
	})
}

func TestEscape(t *testing.T) {
	if got, want := escape("a=b: #\\\nü😀"), `a\=b\:\ \#\\\u000a\u00fc\ud83d\ude00`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
