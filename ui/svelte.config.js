// Runes everywhere; styles go to files, because the page's policy forbids inline ones.
export default { compilerOptions: { runes: true, css: 'external' } };
