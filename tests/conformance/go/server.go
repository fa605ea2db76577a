// Package server starts the program that STAN_COMMAND names, in place of the package of this name that the tests of stan.go import.
package server

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// ErrDupDurable has the text of the protocol.
var ErrDupDurable = errors.New("stan: duplicate durable registration")

// Options are those that the tests set.
type Options struct {
	ID            string
	NATSServerURL string
	MaxChannels   int
}

// StanServer is a process.
type StanServer struct {
	command *exec.Cmd
	ended   chan struct{}
	stop    sync.Once
}

// GetDefaultOptions returns the options of a server that is given none.
func GetDefaultOptions() *Options { return &Options{ID: "test-cluster"} }

// RunServer starts a server with a NATS of its own on port 4222.
func RunServer(id string) (*StanServer, error) {
	options := GetDefaultOptions()
	options.ID = id
	return RunServerWithOpts(options, nil)
}

// RunServerWithOpts starts a server and returns once it is ready.
func RunServerWithOpts(options *Options, _ interface{}) (*StanServer, error) {
	words := append(strings.Split(os.Getenv("STAN_COMMAND"), "\n"), "-cid", options.ID)
	if options.NATSServerURL != "" {
		words = append(words, "-ns", options.NATSServerURL)
	} else {
		words = append(words, "-a", "127.0.0.1", "-p", "4222")
	}
	if options.MaxChannels != 0 {
		words = append(words, "-mc", strconv.Itoa(options.MaxChannels))
	}
	command := exec.Command(words[0], words[1:]...)
	output, err := command.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	server := &StanServer{command: command, ended: make(chan struct{})}
	ready := make(chan struct{})
	go func() {
		lines := bufio.NewScanner(output)
		for known := false; lines.Scan(); {
			if !known && strings.Contains(lines.Text(), "Streaming Server is ready") {
				known = true
				close(ready)
			}
		}
		command.Wait()
		close(server.ended)
	}()
	select {
	case <-ready:
		return server, nil
	case <-server.ended:
		return nil, errors.New("the server has ended before it was ready")
	}
}

// Shutdown ends the server and returns when it has ended.
func (server *StanServer) Shutdown() {
	server.stop.Do(func() {
		server.command.Process.Signal(syscall.SIGTERM)
		<-server.ended
	})
}
