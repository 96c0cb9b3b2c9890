package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"time"
)

// late holds the answers to clones back: as a vCenter under load does, which goes on with the clone meanwhile.
func late(api http.Handler, by time.Duration) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		call, err := io.ReadAll(request.Body)
		if err != nil {
			http.Error(response, err.Error(), http.StatusBadRequest)
			return
		}
		request.Body = io.NopCloser(bytes.NewReader(call))
		if !bytes.Contains(call, []byte("<CloneVM_Task")) {
			api.ServeHTTP(response, request)
			return
		}
		answer := httptest.NewRecorder()
		api.ServeHTTP(answer, request)
		time.Sleep(by)
		for name, values := range answer.Header() {
			response.Header()[name] = values
		}
		response.WriteHeader(answer.Code)
		// Where that fails, nobody waits for it any more.
		_, _ = response.Write(answer.Body.Bytes())
	})
}
