"""The doctor: small requests that find out what is wrong with a server for agent use."""
