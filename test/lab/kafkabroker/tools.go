package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/kuberelay/kuberelay/test/lab/apt"
)

// minJava is the oldest Java version that runs Kafka's broker since Kafka 4.0 (KIP-1013).
const minJava = 17

// howToInstall ends every error about a missing tool.
const howToInstall = `install Java 17 or later, and Maven:
  Debian, Ubuntu:  apt-get install openjdk-17-jre-headless maven   (default-jre-headless where there is no 17)
  Fedora:          dnf install java-latest-openjdk-headless maven
  macOS:           brew install openjdk maven, and set JAVA_HOME to what 'brew --prefix openjdk' says
or set JAVA_HOME to a Java that is elsewhere`

// tools finds Java and, if wantMaven is true, Maven. If it runs as root on a system with apt-get, it
// installs missing tools.
func tools(ctx context.Context, log io.Writer, root, wantMaven bool) (java Installation, maven string, err error) {
	java, maven, missing := find(ctx, wantMaven)
	if missing == nil {
		return java, maven, nil
	}
	_, err = exec.LookPath("apt-get")
	// apt-get can't fix a wrong JAVA_HOME.
	if !root || err != nil || errors.Is(missing, errJavaHome) || ctx.Err() != nil {
		return Installation{}, "", fmt.Errorf("%w\n%s", missing, howToInstall)
	}
	fmt.Fprintf(log, "%v: installing it\n", missing)
	if err := install(ctx, log); err != nil {
		return Installation{}, "", fmt.Errorf("%w\n%w\n%s", missing, err, howToInstall)
	}
	if java, maven, missing = find(ctx, wantMaven); missing != nil {
		return Installation{}, "", fmt.Errorf("%w, even after apt-get\n%s", missing, howToInstall)
	}
	return java, maven, nil
}

// find returns the paths of Java and, if wantMaven is true, of Maven. The error missing names the
// missing tools.
func find(ctx context.Context, wantMaven bool) (java Installation, maven string, missing error) {
	java, missing = findJava(ctx)
	if wantMaven {
		var err error
		if maven, err = exec.LookPath("mvn"); err != nil {
			missing = errors.Join(missing, errNoMaven)
		}
	}
	return java, maven, missing
}

var (
	errNoMaven = errors.New("the broker's jars are not in the cache yet, and Maven, which fetches them, is missing: no mvn in PATH")
	// errJavaHome means that JAVA_HOME doesn't refer to a suitable Java.
	errJavaHome = errors.New("JAVA_HOME is wrong")
)

// findJava returns an installation with the java command in JAVA_HOME, or in PATH if JAVA_HOME isn't
// set. It returns an error if this Java isn't suitable.
func findJava(ctx context.Context) (Installation, error) {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		java := filepath.Join(home, "bin", "java")
		version, err := askJava(ctx, java)
		if err != nil {
			return Installation{}, fmt.Errorf("%w: it is %s: %w", errJavaHome, home, err)
		}
		return Installation{Java: java, version: version}, nil
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return Installation{}, errors.New("java is missing: no java in PATH, and no JAVA_HOME")
	}
	version, err := askJava(ctx, java)
	return Installation{Java: java, version: version}, err
}

var javaVersion = regexp.MustCompile(`version "(?:1\.)?(\d+)`)

// askJava returns the output of java -version. It returns an error if the Java doesn't run or is too
// old. On macOS without Java, the java command exists but fails.
func askJava(ctx context.Context, java string) (string, error) {
	output, err := exec.CommandContext(ctx, java, "-version").CombinedOutput()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", fmt.Errorf("%s does not run: %w: %s", java, err, strings.TrimSpace(string(output)))
	}
	m := javaVersion.FindSubmatch(output)
	if m == nil {
		return "", fmt.Errorf("cannot determine the Java version of %s: %s", java, output)
	}
	if version, err := strconv.Atoi(string(m[1])); err != nil || version < minJava {
		return "", fmt.Errorf("%s is Java %s, and Kafka's broker needs %d or later", java, m[1], minJava)
	}
	return string(output), nil
}

// install installs Java and Maven with apt-get, on Debian and its derivatives.
func install(ctx context.Context, log io.Writer) error {
	if err := apt.Run(ctx, log, "updating apt-get's lists", "update"); err != nil {
		return err
	}
	var errs []error
	for _, java := range []string{"openjdk-17-jre-headless", "default-jre-headless"} {
		err := apt.Run(ctx, log, "installing "+java+" and maven with apt-get", "install", "--no-install-recommends", java, "maven")
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
