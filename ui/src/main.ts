// The page begins here.
import { mount } from 'svelte';
import './app.css';
import App from './App.svelte';

// A browser that has the cookie already is not sent on without the token: it shall not stay in the address.
if (new URLSearchParams(location.search).has('token')) history.replaceState(null, '', location.pathname + location.hash);

const target = document.getElementById('app');
if (target !== null) mount(App, { target });
