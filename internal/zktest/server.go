package zktest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// Tick is the tickTime of a Server. The shortest session time-out is two ticks, and sessions end on
// a tick.
const Tick = 50 * time.Millisecond

// jarsEnv is the environment variable with a class path that has ZooKeeper. debianJars is the class
// path of Debian's libzookeeper-java. Its second file is the logger that ZooKeeper uses. It logs to
// standard error and needs no configuration.
const (
	jarsEnv    = "CACHEGUARD_ZOOKEEPER_JARS"
	debianJars = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar"
)

// ErrNoServer means that there is no java on the PATH, or that zookeeper.jar or the jar of its
// logger is missing.
var ErrNoServer = errors.New("zktest: no java on the PATH, or no zookeeper.jar")

// Server is one standalone ZooKeeper on its own loopback port. After Restart it still has its data,
// including sessions and their nodes. Its methods are safe for concurrent use.
type Server struct{ *childproc.Server }

// NewServer starts a ZooKeeper and returns once it serves. The arguments are lines of its
// configuration, such as "maxSessionTimeout=2000", or properties of its Java, such as
// "-Dzookeeper.forceSync=yes". On Linux the server dies with this process, even if this process is
// killed. If there is no ZooKeeper, NewServer returns ErrNoServer.
func NewServer(args ...string) (*Server, error) { return newServer(0, args) }

// newServer starts a standalone server, or the member of an ensemble with this number. The
// arguments name the other members.
func newServer(member int, args []string) (*Server, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, ErrNoServer
	}
	jars, err := classPath()
	if err != nil {
		return nil, ErrNoServer
	}
	var data string // the folder with only this server's data
	s, err := childproc.New(childproc.Program{
		Name: "zookeeper",
		Command: func(dir string, port int) (*exec.Cmd, error) {
			data = dataOf(dir)
			if err := os.MkdirAll(data, 0o700); err != nil {
				return nil, err
			}
			if err := os.WriteFile(filepath.Join(data, "myid"), []byte(strconv.Itoa(member)),
				0o600); err != nil {
				return nil, err
			}
			properties, lines := split(args)
			config := filepath.Join(dir, "zoo.cfg")
			if err := os.WriteFile(config, []byte(configuration(data, port)+lines),
				0o600); err != nil {
				return nil, err
			}
			main := []string{
				"-cp", jars, "org.apache.zookeeper.server.quorum.QuorumPeerMain", config,
			}
			return exec.Command(java, append(properties, main...)...), nil
		},
		// An open port is not enough, because the port is open long before the server serves.
		Ready: func(addr string, _ func(words string) bool) bool {
			conf, err := ask(addr, "conf")
			return err == nil && strings.Contains(conf, "dataDir="+data)
		},
		PortTaken: "Address already in use",
	})
	if err != nil {
		return nil, err
	}
	return &Server{s}, nil
}

// configuration returns the configuration that every server has.
func configuration(data string, port int) string {
	return strings.Join([]string{
		"tickTime=" + strconv.FormatInt(Tick.Milliseconds(), 10),
		"minSessionTimeout=" + strconv.FormatInt(2*Tick.Milliseconds(), 10),
		"maxSessionTimeout=60000",
		"dataDir=" + data,
		"clientPort=" + strconv.Itoa(port),
		"clientPortAddress=" + childproc.Loopback,
		"maxClientCnxns=0",
		"admin.enableServer=false",
		"4lw.commands.whitelist=*",
		"",
	}, "\n")
}

// split returns the properties of Java and the lines of configuration. The properties begin with
// those that every server has.
func split(args []string) (properties []string, lines string) {
	properties = []string{
		// For a fast start, because the server doesn't live long.
		"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		// Writes need not reach the disk: tests end only the process, never the machine.
		"-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=64",
	}
	for _, a := range args {
		if strings.HasPrefix(a, "-") {
			properties = append(properties, a)
		} else {
			lines += a + "\n"
		}
	}
	return properties, lines
}

// RestartEmpty kills the server if it runs, and starts it again without its data, as after the loss
// of a disk.
func (s *Server) RestartEmpty() error {
	s.Kill()
	if err := os.RemoveAll(dataOf(s.Dir())); err != nil {
		return err
	}
	return s.Restart()
}

func dataOf(dir string) string { return filepath.Join(dir, "data") }

// classPath returns the class path of ZooKeeper, or an error if there is none.
func classPath() (string, error) {
	if jars := os.Getenv(jarsEnv); jars != "" {
		return jars, nil
	}
	for _, jar := range strings.Split(debianJars, ":") {
		if _, err := os.Stat(jar); err != nil {
			return "", err
		}
	}
	return debianJars, nil
}
