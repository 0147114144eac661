package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"github.com/cacheguard/cacheguard/cacheguard"
)

const (
	mostName   = 100  // characters of a category's name
	mostRename = 4096 // bytes of a request that renames

	// bodyTimeout is the time limit for a client to send the body of a rename. It is less than the
	// time for which a stopping shop waits for requests.
	bodyTimeout = 4 * time.Second
)

func (s *shop) getCategory(w http.ResponseWriter, r *http.Request) {
	id, ok := pathID(w, r)
	if !ok {
		return
	}
	c, err := s.category(r.Context(), id)
	if err != nil {
		s.fail(w, r, fmt.Sprintf("category %d", id), err)
		return
	}
	writeJSON(w, http.StatusOK, c)
}

// pathID returns the id in a request's path. If the path has no valid id, pathID answers the
// request, without a look at cache and database.
func pathID(w http.ResponseWriter, r *http.Request) (id int, ok bool) {
	text := chi.URLParam(r, "id")
	id, err := strconv.Atoi(text)
	// "007" would be another URL for the same category.
	if err != nil || id < 1 || id > math.MaxInt32 || strconv.Itoa(id) != text {
		refuse(w, http.StatusNotFound,
			fmt.Sprintf("there is no category %.40q: ids are numbers from 1", text))
		return 0, false
	}
	return id, true
}

// renaming is the body of a request that renames.
type renaming struct {
	Name string `json:"name"`
}

// renameCategory answers 200 when all caches have forgotten the old name. The answer 202 means that
// the category is renamed, but that replicas may use the old name until the outbox can tell them.
func (s *shop) renameCategory(w http.ResponseWriter, r *http.Request) {
	id, ok := pathID(w, r)
	if !ok {
		return
	}
	// This read deadline need not be reset: net/http removes it when the request has been read to
	// its end.
	//
	// An error means that there is no connection. Then no deadline is needed.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	name, err := readName(http.MaxBytesReader(w, r.Body, mostRename))
	if err != nil {
		status := http.StatusBadRequest
		if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
			status = http.StatusRequestEntityTooLarge
		} else if errors.Is(err, os.ErrDeadlineExceeded) {
			status = http.StatusRequestTimeout
		}
		refuse(w, status, err.Error())
		return
	}
	switch err, untold := s.rename(r.Context(), id, name), new(untoldError); {
	case err == nil:
		writeJSON(w, http.StatusOK, renamed{id, name})
	case errors.Is(err, cacheguard.ErrNotFound):
		refuse(w, http.StatusNotFound, fmt.Sprintf("category %d does not exist", id))
	case errors.Is(err, errTaken):
		refuse(w, http.StatusConflict,
			fmt.Sprintf("category %d can't be %q: %v", id, name, errTaken))
	case errors.As(err, &untold):
		s.log.Warn("a category was renamed, but caches could not be told yet", "id", id, "error",
			err)
		writeJSON(w, http.StatusAccepted, renamed{id, name})
	default:
		s.fail(w, r, fmt.Sprintf("category %d", id), err)
	}
}

// renamed is the answer to a request that has renamed a category.
type renamed struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
}

// readName reads the new name from the body of a request.
func readName(body io.Reader) (string, error) {
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	var to renaming
	if err := decoder.Decode(&to); err != nil {
		// Its text names types of Go.
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
			err = fmt.Errorf("got: %s", wrong.Value)
			if wrong.Field != "" {
				err = fmt.Errorf("%s is of the kind %s", wrong.Field, wrong.Value)
			}
		}
		return "", fmt.Errorf(`want {"name": "the new one"}: %w`, err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return "", errors.Join(errors.New(`want one {"name": "the new one"}, and nothing after it`),
			err)
	}
	name := strings.TrimSpace(to.Name)
	switch {
	case name == "":
		return "", errors.New("the name is empty")
	case utf8.RuneCountInString(name) > mostName:
		return "", fmt.Errorf("the name has %d characters: want %d at most",
			utf8.RuneCountInString(name), mostName)
	case strings.ContainsRune(name, utf8.RuneError):
		// encoding/json replaces invalid UTF-8 by this character.
		return "", errors.New("the name is not UTF-8, or has U+FFFD in it")
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "", fmt.Errorf("the name %q has characters that can't be printed", name)
	}
	return name, nil
}
